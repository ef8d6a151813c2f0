// SPDX-License-Identifier: Apache-2.0
//
// The corpora once more, input by input, in a build with sanitizers: what was found once is not lost again. Arguments:
// the directory of the corpora, then names of targets or nothing for all. Ends with 1 when a corpus is missing or
// empty.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz.h"

namespace {

constexpr unsigned kSeconds = 240;  // for one input, of microseconds usually: then it does not end

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* listed = opendir(directory.c_str());
  if (listed == nullptr) return names;
  for (dirent* entry = readdir(listed); entry != nullptr; entry = readdir(listed))
    if (entry->d_name[0] != '.') names.push_back(directory + "/" + entry->d_name);
  closedir(listed);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: %s CORPORA [TARGET...]\n", arguments[0]);
    return 2;
  }
  int status = 0;
  for (const fuzz::Target& target : fuzz::kTargets) {
    if (count > 2 && std::none_of(arguments + 2, arguments + count,
                                  [&](const char* name) { return strcmp(name, target.name) == 0; }))
      continue;
    const std::vector<std::string> files = files_in(std::string(arguments[1]) + "/" + target.name);
    for (const std::string& path : files) {
      std::ifstream file(path, std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      fprintf(stderr, "%s\n", path.c_str());  // the last line names what failed
      alarm(kSeconds);
      target.run(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      alarm(0);
    }
    printf("%s: %zu inputs\n", target.name, files.size());
    if (files.empty()) status = 1;
  }
  return status;
}
