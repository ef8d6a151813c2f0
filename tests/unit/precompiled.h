// SPDX-License-Identifier: Apache-2.0
//
// Headers that nearly every unit reads, compiled once for all of them. A unit includes what it uses all the same.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>
