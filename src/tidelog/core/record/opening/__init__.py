"""The few places where a broker opens a batch to serve a request, and what that may cost.

`work_budget.py` says how much one request may cost, `opened_batch.py` is a batch that is open,
`record_scan.py` reads records without making objects of them, `packed_form.py` checks how a
batch is packed without unpacking it.
"""
