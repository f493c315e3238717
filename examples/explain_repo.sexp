; Explains a repository: find the files a question is about, summarise each
; of them at the same time, then answer from the summaries.
;
;   agentflow run examples/explain_repo.sexp -b question="how are streams cut off detected?"

(defatom summarise-file
  (params (question string) (path string) (text string))
  (description "Summarise one file with a question in mind")
  (instructions "Question: {{question}}

Summarise what the file {{path}} has to say about it, and quote its most telling line.

{{text}}")
  (output_format (type "json")
                 (schema ((summary string) (key_points "string[]")))))

(defatom answer-question
  (params (question string) (summaries string))
  (description "Answer a question from summaries of files")
  (instructions "Question: {{question}}

Answer it from these summaries alone, naming the files you rely on.

{{summaries}}"))

(define (summary-of path text)
  (try (dict "path" path
             "summary" (value-of (summarise-file (question question)
                                                 (path path)
                                                 (text text))))
    (catch (e)
      (log-message "no summary of" path "-" (get-field e 'message))
      (dict "path" path "error" e))))

(define (summarise path)
  (let ((read (system:read_files (file_paths (list path)))))
    (if (= 0 (get-field (get-field read 'notes) 'files_read_count))
        (begin (log-message "cannot be read, left out:" path) nil)
        (summary-of path (content read)))))

(define (error-of outcome) (get outcome "error"))
(define (path-of outcome) (get outcome "path"))

(define files (get_context (query question) (max_results 6)))
(define outcomes (filter identity (pmap summarise files 4)))
(define summaries (filter (lambda (o) (null? (error-of o))) outcomes))
(define failures (filter error-of outcomes))

(when (null? summaries)
  (if (null? failures)
      (error "no readable file has anything to do with the question:" question)
      (raise (error-of (first failures)))))

(dict "answer" (value-of (answer-question (question question)
                                          (summaries (to-json summaries))))
      "files" (map path-of summaries)
      "left_out" (map path-of failures))
