"""Interplay: what does each training stage of a reasoning language model contribute,
and how do the stages depend on each other?"""
