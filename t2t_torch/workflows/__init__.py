"""The library's functions: generate, train, evaluate, decode, export, serve, search, import, quick.

    settings = TrainSettings(problem="dates_to_iso", model="transformer", ...)
    train(settings, callbacks=[MyHook()], reporter=SILENT)

A workflow is a function of immutable settings, which says once what can be set (`settings.py`).
`t2t_torch.train` and the like make the settings of keyword arguments, a command makes them of its
flags.  A workflow reports to the current reporter (`reporter.py`), and takes a stop request in
place of handling signals.  Files here import torch inside functions.
"""
