"""The job kind `train`: rounds of local steps on one model, exchanged with partners and merged by a policy.

Start with job.py, which reads like a round: train, describe, publish, merge, evaluate, save (what it shares with other
kinds is in ../model); steps.py does the local steps. plan.py is what all members of the run agree on, binding.py makes
it from a task and back, prepare.py turns it into a job, options.py is what the job is set up with. task_source.py hands
on the founder's file, saved_task.py remembers the task, model_check.py compares what models compute. shard_training.py
connects training with data that travels, shard_rows.py shows it, model_swap.py (rules: model_swap_rules.py) sends
models to data that stays at home. export.py and settled.py write the model, generations.py lets it write texts.
"""
