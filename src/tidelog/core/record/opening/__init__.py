"""Decompressing batches to serve a request, within a budget.

`work_budget.py` limits the cost of one request, `opened_batch.py` is a decompressed batch,
`record_scan.py` reads records without making objects of them, `packed_form.py` checks how a
batch is packed without unpacking it.
"""
