; Write, judge, rewrite: a director-evaluator loop over three tasks.
;
;   agentflow run examples/improve_text.sexp -b topic="tides" --model anthropic:claude-sonnet-5-5

(defatom draft
  (params (topic string) (advice string))
  (instructions "Write three sentences about {{topic}}. {{advice}}"))

(defatom judge
  (params (text string))
  (instructions "Grade this text from 0 to 10 and say what would make it better.

{{text}}")
  (output_format (type "json") (schema ((grade integer) (advice string)))))

(director-evaluator-loop
  (max-iterations 3)
  (initial-director-input "Be plain.")
  (director (lambda (advice i) advice))
  (executor (lambda (advice i) (value-of (draft (topic topic) (advice advice)))))
  (evaluator (lambda (text advice i) (value-of (judge (text text)))))
  (controller (lambda (verdict advice text i)
                (if (>= (get verdict "grade") 8)
                    (list 'stop text)
                    (list 'continue (get verdict "advice"))))))
