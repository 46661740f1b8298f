"""The RL loop and its seams: sampler, allocation, prompting, continuation, episode, reward, edit, advantage, policy loss."""
