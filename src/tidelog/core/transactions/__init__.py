"""The transaction coordinator: transactions of producers, as a state machine on the log of
`__transaction_state`. It has no I/O: core/node/coordinating/transaction_coordinator.py runs it on a
broker.
"""
