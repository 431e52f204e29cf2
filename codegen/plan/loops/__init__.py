"""Plans of loops, for any machine (or core) of one compute engine where tiles come and go.

`plan` says what a plan is and in which order its tiles meet; `room` what fits a machine; planners
choose.
"""
