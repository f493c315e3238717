"""The tables in PostgreSQL, and how a database gets them.

Texts are JSON in ASCII: ``jsonb`` takes neither lone surrogates nor NUL, and reorders keys. Times of effects are those of the
process, to the last bit, since forks compare them; those of runs are the server's.
"""

from __future__ import annotations

from agentflow.journal.errors import other_version
from agentflow.journal.postgres.connection import AsyncpgConnection

_MIGRATING = 0x61666C6F77  # the advisory lock for making tables
_MAKING_ROOM = 0x61667061  # the advisory lock for making a partition
_FIRST_PART = 10_000
_LEAST_PART, _MOST_PART = 1_000, 10_000_000
"""Number of runs per partition, with all their records."""
_PART_S = 86_400
_VERSION_1 = """
create table af_run(rid bigint generated always as identity primary key, run text not null unique, base text,
  program text not null, digest text not null, input text not null, status text not null default 'queued',
  epoch bigint not null default 0, slice bigint not null default 0, seq bigint not null default 0, owner bigint,
  deaths int not null default 0, wake_at timestamptz, spent_s float8 not null default 0, result text, error text,
  created timestamptz not null default now(), updated timestamptz not null default now()) with (fillfactor = 70);
create index af_run_owner on af_run(owner) where status = 'running';
create index af_run_due on af_run(wake_at) where status = 'waiting';
create index af_run_updated on af_run(updated);
create table af_effect(rid bigint not null, key bytea not null, path text not null, leaf bytea, kind text not null,
  name text not null, content bytea not null, state smallint not null, value text, turns text, usage bigint[], cost float8,
  t0 float8, t1 float8, primary key(rid, key));
create table af_exchange(hash bytea primary key, before bytea, value text not null);
create table af_opening(run text primary key, hash bytea not null);
create table af_session(name text primary key, state text not null, turns int not null, holder text, last text,
  created timestamptz not null default now(), updated timestamptz not null default now());
create index af_session_holder on af_session(holder) where holder is not null;
create index af_session_last on af_session(last) where last is not null;
create table af_turn(session text not null, number int not null, value text not null, primary key(session, number));
create table af_opened(name text primary key, owner bigint not null);
create table af_result(content bytea primary key, kind text not null, name text not null, value text not null, turns text,
  usage bigint[], cost float8, at float8 not null);
create index af_result_at on af_result(at);
create table af_owner(owner bigint primary key, host text not null, pid int not null,
  started timestamptz not null default now(), seen timestamptz not null default now());
"""
_VERSION_2 = """
create table af_event(number bigint generated always as identity primary key, run text not null, slice int not null,
  seq bigint not null, line bytea not null);
create index af_event_run on af_event(run, number);
create table af_event_content(run text not null, digest text not null, body bytea not null, primary key(run, digest));
create table af_event_log(run text primary key, started bytea, finished bytea, bytes bigint not null,
  updated float8 not null default extract(epoch from clock_timestamp()));
"""
_VERSION_3 = """
alter table af_run add column queue text, add column tenant text not null default '',
  add column priority int not null default 0, add column cancelling boolean not null default false;
create index af_run_queue on af_run(updated) where queue is not null and status in ('queued', 'waiting');
create index af_run_tenant on af_run(tenant) where queue is not null and status in ('queued', 'running', 'waiting');
create index af_run_cancelling on af_run(owner) where cancelling and status = 'running';
"""
_VERSION_4 = """
create table af_schedule(name text primary key, cron text not null, zone text not null, program text not null,
  digest text not null, input text not null, queue text not null, tenant text not null, priority int not null,
  next timestamptz not null, last text, created timestamptz not null default now());
"""
_VERSION_5 = """
create unlogged table af_rate(key text primary key, request_at float8 not null default 0, token_at float8 not null default 0,
  held float8 not null default 0) with (fillfactor = 50);
"""
_VERSION_6 = """
create table af_fork(id bigint generated always as identity primary key, run text not null, key bytea not null,
  need int not null, state smallint not null default 0, error text);
create index af_fork_run on af_fork(run);
alter table af_run add column parent text, add column fork bigint;
create index af_run_fork on af_run(fork) where fork is not null;
"""
_VERSION_7 = """
create table af_budget(root text primary key, usd float8, tokens bigint) with (fillfactor = 50);
create table af_lease(run text primary key, root text not null, usd float8 not null default 0, tokens bigint not null default 0);
create index af_lease_root on af_lease(root);
"""
_VERSION_8 = f"""
lock table af_run in share row exclusive mode;
alter table af_effect rename to af_effect_1;
alter index af_effect_pkey rename to af_effect_1_pkey;
create table af_effect(rid bigint not null, key bytea not null, path text not null, leaf bytea, kind text not null,
  name text not null, content bytea not null, state smallint not null, value text, turns text, usage bigint[], cost float8,
  t0 float8, t1 float8, primary key(rid, key)) partition by range (rid);
create table af_part(name text primary key, first bigint not null, upto bigint not null unique,
  created timestamptz not null default now());
do $$ declare edge bigint := {_FIRST_PART} + coalesce((select max(rid) from af_run), 0); begin
  execute format('alter table af_effect attach partition af_effect_1 for values from (minvalue) to (%s)', edge);
  insert into af_part(name, first, upto) values ('af_effect_1', 0, edge);
end $$;
create function af_make_room() returns trigger language plpgsql security definer set search_path from current as $$
declare top bigint; edge bigint; size bigint; part text;
begin
  select max(rid) into top from fresh;
  loop
    select max(upto) into edge from af_part;
    exit when top is null or top < edge;
    perform pg_advisory_xact_lock({_MAKING_ROOM});
    select upto, (upto - first) * {_PART_S} / greatest(1, extract(epoch from clock_timestamp() - created))
      into edge, size from af_part order by upto desc limit 1;
    exit when top < edge;
    size := least(greatest(size, {_LEAST_PART}), {_MOST_PART});
    part := 'af_effect_' || edge;
    execute format('create table %I (like af_effect including all)', part);
    execute format('alter table af_effect attach partition %I for values from (%s) to (%s)', part, edge, edge + size);
    insert into af_part(name, first, upto) values (part, edge, edge + size);
  end loop;
  return null;
end $$;
create index af_event_at on af_event(run, slice, seq);
drop index af_event_run;
create table af_blob(hash bytea not null, rid bigint not null, primary key(hash, rid));
create index af_blob_rid on af_blob(rid);
insert into af_meta values ('id', gen_random_uuid()::text);
create trigger af_make_room after insert on af_run referencing new table as fresh
  for each statement execute function af_make_room();
"""
"""Records are partitioned by the number of their run, which rises with time, so that old ones go with their table.

A new partition has room for about as many runs as there were in a day. It is created with the rights of the tables' owner,
in the transaction of the first run with records there, and attached without blocking readers and writers of the
others.
"""
_VERSION_9 = """
alter table af_owner add column build text, add column slots int;
alter table af_run add column build text;
"""
_VERSION_10 = """
create table af_summary(run text not null, name text not null, status text not null, queue text, tenant text not null,
  slices bigint not null, spent_s float8 not null, usage bigint[] not null, cost float8, error text,
  created timestamptz not null, updated timestamptz not null, primary key(run, created));
create index af_summary_updated on af_summary(updated);
"""
_VERSION_11 = """
alter table af_run add column reached text;
"""
"""The records that there were when the owner of a run took it from one that had died."""
_VERSION_12 = """
alter table af_budget rename column usd to nanos;
alter table af_budget alter column nanos type bigint using round(nanos * 1e9)::bigint;
alter table af_lease rename column usd to nanos;
alter table af_lease alter column nanos drop default, alter column nanos type bigint using round(nanos * 1e9)::bigint,
  alter column nanos set default 0;
"""
_VERSION_13 = """
create table af_purse(name text not null, starts float8 not null, ends float8, nanos bigint not null default 0,
  tokens bigint not null default 0, calls bigint not null default 0, primary key(name, starts)) with (fillfactor = 50);
create table af_purse_lease(name text not null, starts float8 not null, owner text not null, nanos bigint not null default 0,
  tokens bigint not null default 0, calls bigint not null default 0, number bigint not null default 0,
  expires float8 not null, primary key(name, starts, owner)) with (fillfactor = 50);
create index af_purse_ends on af_purse(ends);
"""
_VERSION_14 = """
create table af_batch(id text primary key, model text not null, endpoint text not null, state text not null,
  vendor text not null, created float8 not null, due float8 not null, sender text not null);
create table af_batch_call(id text primary key, run text not null, key bytea not null, model text not null,
  endpoint text not null, body text not null, within_s float8 not null, at float8 not null,
  purse text not null, period float8 not null, batch text not null, answer text);
create index af_batch_call_batch on af_batch_call(batch);
"""
MIGRATIONS = (
    _VERSION_1,
    _VERSION_2,
    _VERSION_3,
    _VERSION_4,
    _VERSION_5,
    _VERSION_6,
    _VERSION_7,
    _VERSION_8,
    _VERSION_9,
    _VERSION_10,
    _VERSION_11,
    _VERSION_12,
    _VERSION_13,
    _VERSION_14,
)
"""The statements that create each version of the tables from the previous one."""
VERSION = len(MIGRATIONS)


async def migrate(db: AsyncpgConnection, name: str) -> None:
    """Bring the tables to this version, one process at a time. Raises JournalError (``durable/version``)."""
    if await _version(db, name) == VERSION:
        return
    async with db.transaction():
        await db.execute("select pg_advisory_xact_lock($1)", _MIGRATING)
        version = await _version(db, name)
        if version > VERSION:
            raise other_version(name, version, VERSION)
        if version == 0:
            await db.execute("create table af_meta(key text primary key, value text not null)")
        for statements in MIGRATIONS[version:]:
            await db.execute(statements)
        await db.execute(
            "insert into af_meta values ('version', $1) on conflict (key) do update set value = excluded.value",
            str(VERSION),
        )


async def has_table(db: AsyncpgConnection, name: str) -> bool:
    """Whether there is a table of this name; ``to_regclass`` may not know of one that another session has just made."""
    query = "select exists (select from pg_class where relname = $1 and relkind = 'r' and pg_table_is_visible(oid))"
    return bool(await db.fetchval(query, name))


async def _version(db: AsyncpgConnection, name: str) -> int:
    """The version of the tables; 0 where there are none. Raises JournalError (``durable/version``) for tables that say none."""
    if not await has_table(db, "af_meta"):
        return 0
    version = await db.fetchval("select value from af_meta where key = 'version'")
    if version is None or not version.isdecimal():
        raise other_version(name, version, VERSION)
    return int(version)
