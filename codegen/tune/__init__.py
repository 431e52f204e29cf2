"""Planning by measurements: search that tries plans on the machine and learns from what it sees.

`space` says what a tuner has to know of plans; the backend of a kind of machines says it of its
own. `tuners` propose plans, `tune` has them measured, by a callable that the caller gives, and
keeps every trial in a `log`; `planner` plans by what a log holds, `residual` corrects the analytic
model by it.
"""
