"""Reinforcement learning in a swarm: every node trains a policy of its own, and all of them share one critic.

Start with ppo.py (the algorithm, in one file) and task.py (what a user writes). advantage.py and rollout.py are the
pure core; critic.py is the shared value network; experience.py keeps what others collected; trust.py decides how far
the shared critic is used. job.py runs a laptop's part, and that of the critic's owner.
"""
