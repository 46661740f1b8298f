"""The RL loop and its seams: sampler, planner, episode, reward, edit, advantage, policy loss."""
