; Answers a question about a directory from the beginnings of three files:
; little text, so that a small model on this machine is through it in seconds.
;
;   agentflow run examples/explain_file.sexp -b question="how are streams cut off detected?" --model local

(defatom judge-file
  (params (question string) (text string))
  (description "Say whether a file is about a question")
  (instructions "{{text}}

Is this text about the question: {{question}}")
  (output_format (type "json") (schema ((relevant boolean)))))

(defatom answer-question
  (params (question string) (text string))
  (description "Answer a question from the beginning of a file")
  (instructions "{{text}}

In one sentence: {{question}}"))

(define (beginning path)
  (let ((text (content (system:read_files (file_paths (list path))))))
    (substring text 0 (min 600 (string-length text)))))

(define (judge path)
  (let ((text (beginning path)))
    (dict "path" path
          "text" text
          "relevant" (get-field (value-of (judge-file (question question) (text text)))
                                'relevant))))

(define (relevant? judged) (get-field judged 'relevant))

(define files (get_context (query question) (max_results 3)))
(when (null? files)
  (error "no file has anything to do with the question:" question))
(define judged (pmap judge files 2))
(define best (first (append (filter relevant? judged) judged)))

(dict "answer" (value-of (answer-question (question question)
                                          (text (get-field best 'text))))
      "files" (list (get-field best 'path))
      "left_out" (list))
