"""Find the possible errors of a program without a model: every relevant answer is tried, and nothing is called."""

import asyncio

from agentflow.testing import explore

TRIAGE = """
(defatom grade (params (report string))
  (instructions "How bad is this, from 0 to 10, and whose is it?\\n{{report}}")
  (output_format (type "json") (schema ((severity integer) (teams "string[]")))))

(defatom steps (params (report string))
  (instructions "How is this reproduced? JSON: a list of steps.\\n{{report}}")
  (output_format (type "json") (schema "string[]")))

(define graded (value-of (grade (report report))))
(define severity (get graded "severity"))

(define (until-reproduced tries)
  (let ((found (value-of (steps (report report)))))
    (if (null? found) (until-reproduced tries) found)))

(cond ((>= severity 8) (format "page {}" (first (get graded "teams"))))
      ((= severity 0) "closed")
      (else (string-join (until-reproduced 3) "; ")))
"""


async def main() -> None:
    explored = await explore(TRIAGE, bindings={"report": "the export is empty"})
    for finding in explored.found:
        print(finding)
    print(f"{len(explored.arms) - len(explored.missed)} of {len(explored.arms)} arms")


asyncio.run(main())
