"""Data that all rooms share: values of programs, messages, results, requests, sessions, errors and limits. No I/O.

Read ``values`` (what a program computes with), ``messages`` and ``results`` (what models are sent and answer), ``requests`` (what a
program asks of the host), ``session`` and ``context``; then ``errors``, and ``limits`` with ``money``.
"""
