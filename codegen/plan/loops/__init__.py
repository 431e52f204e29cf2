"""Plans for tile machines: one compute engine, tiles that come and go.

`plan` says what a plan is and in which order its tiles meet; `room` what fits a machine; planners
choose.
"""
