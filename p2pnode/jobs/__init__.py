"""Kinds of work that a run can consist of. A run's manifest lists its jobs, and a node takes part in some of them.

Start with contract.py: what a job is, and what it is given; examples/job_kind.py is a whole kind in one short file.
runner.py runs a node's jobs side by side and keeps their failures apart, scheduler.py shares the one compute thread
between them, registry.py finds kinds by name (outside packages add theirs as entry points `p2pnode.jobs`), offers.py
gets a file that a job needs from a member.

train/ trains one model with a merge policy, queues/ trains several, loop/ takes part from a user's script, actors/
learns policies with a shared critic, paths/ trains paths through one model, pipeline/ divides one model among machines;
model/, blocks/ and leases/ are what kinds are made of. The folder of each kind has job.py (what a node does), plan.py
(what members agree on), prepare.py (from a plan to a job), messages.py (what members send each other), status.py (what
views show) and, where users can ask for more, commands.py.
"""
