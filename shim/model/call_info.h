// SPDX-License-Identifier: Apache-2.0
//
// The old name of calls.h.
#pragma once

#include "shim/model/calls.h"
