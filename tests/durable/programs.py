"""Programs for the kill harness, with everything in them whose order or outcome depends on time.

Every call that is carried out has a key of its own, and what it gives contains it as ``<key>``.
"""

from __future__ import annotations

FORMS = r"""
(define (see at) (content (look (at at))))
(define (slow at) (content (look (at at) (ms 20000))))
(define attempts 0)
(define (attempt name)
  (begin (set! attempts (+ attempts 1))
         (flaky (at (string-append name (number->string attempts))) (works (> attempts 2)))))
(define first (map see '("s1" "s2" "s3")))
(define wide
  (pmap (lambda (i) (list (see (string-append "w" i)) (parallel (see (string-append "wa" i)) (see (string-append "wb" i)))))
        '("1" "2" "3" "4")))
(define retried (content (retry 4 (attempt "f"))))
(define raced (race (slow "r1") (try (slow "r2") (finally (see "tidy-r2"))) (see "r3")))
(define failed
  (try (parallel (try (slow "p1") (finally (see "tidy-p1"))) (begin (see "p2") (error "boom")) (slow "p3"))
    (catch (e) (get-field e 'message))))
(define mapped
  (try (pmap (lambda (i) (if (eq? i "m3") (begin (see i) (raise (list i))) (slow i))) '("m1" "m2" "m3" "m4"))
    (catch (e) (get-field e 'value))))
(define timed (try (timeout 0.08 (begin (see "t1") (try (slow "t2") (finally (see "tidy-t2"))))) (catch (e) (get-field e 'code))))
(define edge (try (timeout 0.02 (see "edge")) (catch (e) "late")))
(define followed (see (if (eq? edge "late") "edge-late" "edge-in-time")))
(define evaluated (eval-program '(list (content (look (at "e1"))) (content (look (at "e2")))) (allow look)))
(define hosted (list (host "h1") (try (host "bad") (catch (e) (get-field e 'cause)))))
(define called (call-back (lambda (x) (see (string-append "cb-" x)))))
(define many (content (inner)))
(define found (map (lambda (path) (string-append "<" (car (reverse (string-split path "/"))) ">")) (get_context (query "kestrel"))))
(list found first wide retried raced failed mapped timed evaluated hosted called many (see "end") (list "edge" edge followed))
"""

TASKS = r"""
(defatom ask (params (q string)) (instructions "say: {{q}}") (history_config true))
(defatom work (params (q string)) (instructions "loop: {{q}}") (tools (look)) (history_config true))
(define (say q) (content (ask (q q))))
(define one (say "one"))
(define worked (content (work (q "w"))))
(define both (parallel (say "two") (content (work (q "v"))) (begin (look (at "between")) (say "three"))))
(define after (say "four"))
(define lost (race (begin (say "five") (say "six") (content (look (at "hang") (ms 20000)))) (content (look (at "won") (ms 60)))))
(define solved (content (solve "solve it" (allow look) (max-rounds 2))))
(define saved (call-workflow "pair" (x "wf")))
(list one worked both after lost solved saved (say "end"))
"""

WORKFLOW = r"""
(parallel (content (look (at (string-append x "1")))) (begin (content (look (at (string-append x "2"))))))
"""

MIXED = r"""
(defatom quiet (params (q string)) (instructions "say: {{q}}") (history_config (record_in_session_history true)))
(defatom ask (params (q string)) (instructions "say: {{q}}") (history_config true))
(defatom team (params (q string)) (instructions "team: {{q}}") (tools (look delegate)) (history_config true))
(define (see at) (content (look (at at))))
(define (slow at) (content (look (at at) (ms 20000))))
(define (say q) (content (ask (q q))))
(define drawn (list (now) (random) (uuid)))
(define paid (content (pay (to "p1"))))
(define nested
  (timeout 60
    (race (try (slow "n-slow") (finally (quiet (q "n-tidy"))))
          (pmap (lambda (i) (list (see (string-append "n" i)) (timeout 60 (content (quiet (q (string-append "nq" i)))))))
                '("1" "2" "3")))))
(define teams (pmap (lambda (q) (content (team (q q)))) '("t1" "t2")))
(define delegated (content (delegate (q "d1"))))
(define called (call-back (lambda (x) (content (quiet (q (string-append "cb-" x)))))))
(define ran (eval-program '(list (content (quiet (q "ev"))) (parallel (content (look (at "e1"))) (content (look (at "e2"))))) (allow quiet look)))
(sleep 0.02)
(define timed (try (timeout 0.06 (try (begin (see "tm1") (slow "tm2")) (finally (content (quiet (q "tm-tidy")))))) (catch (e) (get-field e 'code))))
(define edge (try (timeout 0.02 (see "edge")) (catch (e) "late")))
(define followed (see (if (eq? edge "late") "edge-late" "edge-in-time")))
(define attempts 0)
(define retried
  (content
    (retry 3 (begin (set! attempts (+ attempts 1)) (quiet (q (string-append "r" (number->string attempts))))
                    (flaky (at (string-append "rf" (number->string attempts))) (works (> attempts 1)))))))
(define asked
  (parallel (ask-human "q1") (begin (see "aside") (ask-human "q2"))
            (pmap (lambda (i) (list (see (string-append "pw" i)) (ask-human (string-append "q-" i)))) '("1" "2"))))
(define talked (list (say "first") (parallel (say "left") (say "right")) (say "last")))
(list paid nested teams delegated called ran timed retried asked talked (content (pay (to "p2"))) (list "edge" edge followed drawn))
"""

WAITS = r"""
(defatom quiet (params (q string)) (instructions "say: {{q}}") (history_config (record_in_session_history true)))
(defatom asks (params (q string)) (instructions "asks: {{q}}") (tools (consult)) (history_config true))
(define (see at) (content (look (at at))))
(define first (ask-human "w1"))
(define several
  (parallel (ask-human "w2") (begin (see "beside") (ask-human "w3"))
            (pmap (lambda (i) (list (see (string-append "p" i)) (ask-human (string-append "w" i)))) '("4" "5"))))
(define rested (race (begin (sleep 60) "slept") (begin (see "up") (ask-human "w6"))))
(define spent (content (spend (to "a1"))))
(define within (timeout 600 (parallel (content (asks (q "c1"))) (content (consult (q "c2"))))))
(define ran (eval-program '(list (ask-human "w7") (content (look (at "e1")))) (allow ask-human look)))
(sleep 0.02)
(define left (race (ask-human "never") (begin (see "r1") "won")))
(list first several rested spent within ran (content (quiet (q "end"))) (list "edge" left))
"""

PYTHON = r'''
@task
def work(q: str) -> str:
    """loop: {{q}}"""

@task
def say(q: str) -> str:
    """say: {{q}}"""

def see(at):
    return look(at)

def slow(at):
    return look(at, ms=20000)

def tidied(at, tidy):
    try:
        return slow(at)
    finally:
        see(tidy)

def late(seconds, at):
    try:
        return timeout(seconds, see(at))
    except TimeoutError as e:
        return e.code

attempts = 0
def attempt(name):
    global attempts
    attempts += 1
    return flaky(f"{name}{attempts}", attempts > 2)

def failing(x):
    if x == "m3":
        see(x)
        raise ValueError(x)
    return slow(x)

first = [see(x) for x in ("s1", "s2", "s3")]
wide = pmap(lambda i: [see(f"w{i}"), parallel(see(f"wa{i}"), see(f"wb{i}"))], range(1, 5))
retried = retry(4, attempt("f"))
raced = race(slow("r1"), tidied("r2", "tidy-r2"), see("r3"))
try:
    failed = pmap(failing, ["m1", "m2", "m3", "m4"])
except ValueError as e:
    failed = e.message
edge = late(0.02, "edge")
followed = see("edge-late" if edge == "timeout/elapsed" else "edge-in-time")
drawn = [now(), random(), uuid()]
told = [say("one"), work("w"), parallel(say("two"), work("v"), ask("say: three"))]
evaluated = eval_program("[look('e1'), look('e2')]", allow=["look"])
solved = solve("solve it", allow=["look"], max_rounds=2).content
saved = outcome(call_workflow("pair", x="wf")).content
hosted = [host("h1"), call_back(lambda x: see(f"cb-{x}")), inner()]
sleep(0.02)
asked = parallel(ask_human("q1"), [see("aside"), ask_human("q2")])
counts = {}
for each in first + wide[0]:
    counts[str(each)] = counts.get(str(each), 0) + 1
[first, wide, retried, raced, failed, told, evaluated, solved, saved, hosted, asked, counts, see("end"), ["edge", edge, followed, drawn]]
'''

TYPES = r"""
(define numbers (list 1 2 3 4 5 6 7 8 9 10 11 12 13 14))
(define (one n)
  (parallel (get-field (receipt (at (format "tool{}" n))) 'parsedContent) (row (format "row{}" n))))
(define (other n) (list (receipt-of (format "made{}" n)) (row (format "after{}" n))))
(list (pmap one numbers) (map other numbers) (content (receipt (at "last"))))
"""
"""What tools and callables give are models with aliases, and dicts and sets of values that JSON has no form for."""

PROGRAMS = {"forms": FORMS, "tasks": TASKS, "mixed": MIXED, "python": PYTHON, "types": TYPES}
"""Each is run, killed and gone on with; ``mixed`` in a session that lasts, and ``python`` is a text in Python."""
WAITING = {"waits": WAITS}
"""The one that mostly waits: for answers, approvals and times, everywhere where it can."""
