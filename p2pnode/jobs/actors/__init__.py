"""Reinforcement learning in a swarm: every node trains a policy of its own, and all of them share one critic.

Start with ppo.py (the algorithm, in one file) and task.py (what a user writes). advantage.py and rollout.py are the
pure core; envs.py runs environments; critic.py is the shared value network; experience.py keeps what others collected;
trust.py decides how far the shared critic is used. learner.py is one laptop's learning, job.py runs it and the critic
where this node owns it.
"""
