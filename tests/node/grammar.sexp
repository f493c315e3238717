; SYNTAX TEST "source.agentflow" "what the lexer does not tell apart"

(defatom review (params (path string)) (instructions "See {{path}} \"twice\" \u00e9 \n"))
;<- - keyword.control.agentflow
;^^^^^^^ keyword.control.agentflow
;        ^^^^^^ variable.other.agentflow
;                                                    ^^^^^ string.quoted.double.agentflow
;                                                         ^^^^^^^^ string.quoted.double.agentflow variable.other.slot.agentflow
;                                                                  ^^ constant.character.escape.agentflow
;                                                                    ^^^^^ - constant.character.escape.agentflow
;                                                                            ^^^^^^ constant.character.escape.agentflow
;                                                                                      ^^^ - string.quoted.double.agentflow
(my-own (notes:add (text "a ; b")))
;^^^^^^ entity.name.function.agentflow
;        ^^^^^^^^^ entity.name.function.agentflow
;                           ^ string.quoted.double.agentflow - comment.line.semicolon.agentflow
[list -1.5e3 .5 +inf.0 1x -x car1 #t]
;^^^^ support.function.agentflow
;     ^^^^^^ constant.numeric.agentflow
;            ^^ constant.numeric.agentflow
;               ^^^^^^ constant.language.agentflow
;                      ^^ variable.other.agentflow - constant.numeric.agentflow
;                         ^^ variable.other.agentflow
;                            ^^^^ variable.other.agentflow - support.function.agentflow
;                                 ^^ constant.language.agentflow
`(a ,b ,@c '(d)) ; and "no string (car
;<- keyword.operator.quote.agentflow
;   ^ keyword.operator.quote.agentflow
;      ^^ keyword.operator.quote.agentflow
;          ^ keyword.operator.quote.agentflow
;                ^^^^^^^^^^^^^^^^^^^^^ comment.line.semicolon.agentflow
#| one #| within (car) |# still "a comment
(if true
; ^^ comment.block.agentflow - keyword.control.agentflow
|# (if true 1 2)
;   ^^ keyword.control.agentflow - comment.block.agentflow
"a string over
(if lines)"
;^^ string.quoted.double.agentflow - keyword.control.agentflow
#;(ignored) 1
;<-- comment.block.datum.agentflow
;           ^ constant.numeric.agentflow
