// SPDX-License-Identifier: Apache-2.0
//
// Program resil-config-doc: prints docs/CONFIGURATION.md on standard output. Linked with the same modules as the
// library, so that the page cannot forget one.
#include <unistd.h>

#include "shim/config/config.h"

int main() {
  resil::ConfigError error;
  char* nothing[] = {nullptr};
  if (!resil::config_load(nothing, &error)) return 1;
  resil::config_print_markdown(STDOUT_FILENO);
  return 0;
}
