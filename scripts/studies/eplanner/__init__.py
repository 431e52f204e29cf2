"""The evaluation of the e-PlaNNer thesis (chapter 8) on simulated set-ups."""
