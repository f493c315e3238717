"""The policies of the table: which arguments of which tools are guarded, and who may fill them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentflow import Provenance, Sink

Guards = Mapping[str, Sequence[str]]

DESTINATIONS: Mapping[str, Guards] = {
    "workspace": {
        "send_email": ["recipients", "cc", "bcc"],
        "create_calendar_event": ["participants"],
        "add_calendar_event_participants": ["participants"],
        "share_file": ["email"],
    },
    "travel": {"send_email": ["recipients", "cc", "bcc"], "create_calendar_event": ["participants"]},
    "banking": {
        "send_money": ["recipient"],
        "schedule_transaction": ["recipient"],
        "update_scheduled_transaction": ["recipient"],
        "update_password": ["password"],
    },
    "slack": {
        "send_direct_message": ["recipient"],
        "send_channel_message": ["channel"],
        "add_user_to_channel": ["user", "channel"],
        "invite_user_to_slack": ["user_email"],
        "get_webpage": ["url"],
        "post_webpage": ["url"],
    },
}
"""Where something goes: recipients, participants, accounts, channels, addresses of pages, and the password."""
CONSEQUENCES: Mapping[str, Guards] = {
    "workspace": {
        "send_email": ["attachments"],
        "delete_email": ["email_id"],
        "create_calendar_event": ["title", "start_time"],
        "cancel_calendar_event": ["event_id"],
        "reschedule_calendar_event": ["event_id"],
        "add_calendar_event_participants": ["event_id"],
        "append_to_file": ["file_id"],
        "create_file": ["filename"],
        "delete_file": ["file_id"],
        "share_file": ["file_id"],
    },
    "travel": {
        "send_email": ["attachments"],
        "create_calendar_event": ["title", "start_time"],
        "cancel_calendar_event": ["event_id"],
        "reserve_hotel": ["hotel"],
        "reserve_restaurant": ["restaurant"],
        "reserve_car_rental": ["company"],
    },
    "banking": {
        "send_money": ["amount"],
        "schedule_transaction": ["amount"],
        "update_scheduled_transaction": ["id", "amount"],
        "update_user_info": ["first_name", "last_name", "street", "city"],
    },
    "slack": {"remove_user_from_slack": ["user"], "invite_user_to_slack": ["user"]},
}
"""What is deleted, shared, booked, paid or changed."""
POLICIES = ("none", "destinations", "destinations + directory", "full + directory")


def policy(name: str, suite: str) -> Provenance | None:
    """The policy ``name`` for a suite's tools; None for no policy."""
    if name == "none":
        return None
    allow = ["user", "directory"] if name.endswith("directory") else ["user"]
    guarded = [DESTINATIONS[suite], CONSEQUENCES[suite]] if name.startswith("full") else [DESTINATIONS[suite]]
    return Provenance(
        rules=[
            Sink(tool, argument, allow=allow)
            for guards in guarded
            for tool, arguments in guards.items()
            for argument in arguments
        ]
    )
