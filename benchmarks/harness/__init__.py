# SPDX-License-Identifier: BSD-3-Clause
"""What compare.py is made of: what to train (cells), who trains it (trainers), in which order (runner), the tables."""
