// SPDX-License-Identifier: Apache-2.0
//
// Headers that nearly every unit reads, compiled once for all of them. A unit includes what it uses all the same.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
