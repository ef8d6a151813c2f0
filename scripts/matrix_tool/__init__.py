# SPDX-License-Identifier: Apache-2.0
"""What scripts/matrix is made of."""
