"""Data that all rooms share: values of programs, messages, results, requests, sessions, errors and limits. No I/O.

Read ``values`` (the values of programs), ``messages`` and ``results`` (requests to models and their answers), ``requests``
(requests of programs to the host), ``session`` and ``context``; then ``errors``, and ``limits``.
"""
