// SPDX-License-Identifier: Apache-2.0
//
// Slurm's own option for resil: srun --resil[=MODES], and the same of sbatch and salloc for the steps within them.
// Built against slurm/spank.h, loaded by a line of plugstack.conf (docs/SLURM.md). Sets LD_PRELOAD and RESIL_ variables
// of the tasks, on each node, and does nothing in a step that nobody asked it for.
//
// Arguments in plugstack.conf: library=FILE, where it is not beside the plugin's folder; default=MODES, for every step.
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(resil, 1)

enum { kWords = 2048, kMostWord = 1024, kChain = 16384 };

// What sbatch and salloc were told, for the steps within; like SLURM_MPI_TYPE and its kind.
static const char kInherited[] = "SLURM_RESIL";
static const char kPreload[] = "LD_PRELOAD";
static const char kLibraryName[] = "libresil.so";

static char asked[kWords];  // by the option of this command; "" without it
static char site[kWords];  // default= of plugstack.conf
static char library[PATH_MAX];

/// The next word of a comma list into `word`; the rest, or null at its end. Words that are too long (refuse) are cut.
static const char* next_word(const char* list, char* word) {
  if (list == NULL || *list == 0) return NULL;
  const size_t length = strcspn(list, ",");
  const size_t kept = length < kMostWord - 1 ? length : kMostWord - 1;
  memcpy(word, list, kept);
  word[kept] = 0;
  return list + length + (list[length] == ',');
}

static int is_mode(const char* word) {
  char mode[kMostWord];
  for (const char* rest = RESIL_MODES; (rest = next_word(rest, mode)) != NULL;)
    if (strcmp(mode, word) == 0) return 1;
  return strcmp(word, "off") == 0;
}

static int has_word(const char* list, const char* wanted) {
  char word[kMostWord];
  while ((list = next_word(list, word)) != NULL)
    if (strcmp(word, wanted) == 0) return 1;
  return 0;
}

/// NAME=VALUE: a setting. Its name, RESIL_ in front and in capitals; 0 where it cannot be one.
static int setting_name(const char* word, char* name) {
  const size_t length = strcspn(word, "=");
  size_t at = 0;
  if (word[length] != '=' || length == 0 || length > 60) return 0;
  if (strncasecmp(word, "RESIL_", 6) != 0) at = (size_t)sprintf(name, "RESIL_");
  for (size_t i = 0; i < length; ++i) {
    if (!isalnum((unsigned char)word[i]) && word[i] != '_') return 0;
    name[at++] = (char)toupper((unsigned char)word[i]);
  }
  name[at] = 0;
  return 1;
}

/// Says why it cannot be meant, in one sentence. `what`: whose words these are.
static int refuse(const char* what, const char* words) {
  char word[kMostWord], name[128];
  int modes = 0;
  if (strlen(words) >= kWords) {
    slurm_error("%s: longer than %d characters", what, kWords - 1);
    return 1;
  }
  for (const char* rest = words; (rest = next_word(rest, word)) != NULL;) {
    if (strlen(word) == kMostWord - 1) {
      slurm_error("%s: a word of more than %d characters", what, kMostWord - 2);
      return 1;
    }
    if (strchr(word, '=') != NULL) {
      if (setting_name(word, name) && strcmp(name, "RESIL_MODE") != 0) continue;
      slurm_error("%s: '%s' is no setting; name the modes alone, and settings as NAME=VALUE (resil env lists them)",
                  what, word);
      return 1;
    }
    if (!is_mode(word)) {
      slurm_error("%s: '%s' is no mode; allowed are off, %s; a comma list", what, word, RESIL_MODES_TEXT);
      return 1;
    }
    ++modes;
  }
  if (has_word(words, "off") && modes > 1) {
    slurm_error("%s: off stands alone", what);
    return 1;
  }
  if (has_word(words, "record") && has_word(words, "verify")) {
    slurm_error("%s: a run is recorded or verified, not both", what);
    return 1;
  }
  return 0;
}

/// Called by srun, sbatch and salloc when they read the option, and by slurmstepd with what srun was told.
static int take_option(int value, const char* argument, int remote) {
  (void)value;
  const char* words = argument != NULL && *argument != 0 ? argument : "watch";
  if (!remote && refuse("--resil", words)) return -1;
  snprintf(asked, sizeof(asked), "%s", words);
  return 0;
}

static struct spank_option option = {
    .name = "resil",
    .arginfo = "MODES",
    .usage = "preload libresil.so into the tasks: " RESIL_MODES_TEXT
             ", a comma list; NAME=VALUE for any other "
             "setting; off: not even where the site has a default",
    .has_arg = 2,
    .val = 0,
    .cb = take_option,
};

/// libresil.so in the folder above the plugin's.
static void find_library(void) {
  Dl_info here;
  char path[PATH_MAX];
  if (dladdr((void*)find_library, &here) == 0 || realpath(here.dli_fname, path) == NULL) return;
  for (int up = 0; up < 2; ++up) {
    char* slash = strrchr(path, '/');
    if (slash == NULL) return;
    *slash = 0;
  }
  if (snprintf(library, sizeof(library), "%.*s/%s", (int)sizeof(library) - 16, path, kLibraryName) < 0) library[0] = 0;
}

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  const spank_context_t context = spank_context();
  if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && context != S_CTX_ALLOCATOR) return 0;
  find_library();
  for (int i = 0; i < count; ++i) {
    if (strncmp(arguments[i], "library=", 8) == 0) {
      snprintf(library, sizeof(library), "%s", arguments[i] + 8);
    } else if (strncmp(arguments[i], "default=", 8) == 0) {
      // A mistake of the site ends nobody's job.
      if (!refuse("plugstack.conf: default", arguments[i] + 8)) snprintf(site, sizeof(site), "%s", arguments[i] + 8);
    } else {
      slurm_error("plugstack.conf: resil has no argument '%s'", arguments[i]);
    }
  }
  return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char** arguments) {
  (void)spank, (void)count, (void)arguments;
  const spank_context_t context = spank_context();
  if (context == S_CTX_ALLOCATOR && asked[0] != 0)
    return setenv(kInherited, asked, 1);  // salloc's command, sbatch's script
  const char* inherited = getenv(kInherited);
  // Refused here whatever plugstack.conf says: an optional plugin's failure would be passed over.
  if (context == S_CTX_LOCAL && asked[0] == 0 && inherited != NULL && refuse(kInherited, inherited)) exit(1);
  return 0;
}

/// Whether the task's environment has it, and it is not empty. `value`: cut where it is longer.
static int job_variable(spank_t spank, const char* name, char* value, int bytes) {
  value[0] = 0;
  const spank_err_t result = spank_getenv(spank, name, value, bytes);
  return result == ESPANK_NOSPACE || (result == ESPANK_SUCCESS && value[0] != 0);
}

/// The library in front of what is preloaded already; another libresil.so gives way. False: too long.
static int chain_with(const char* before, char* chain, size_t bytes) {
  size_t length = (size_t)snprintf(chain, bytes, "%s", library);
  for (const char* at = before; *at != 0;) {
    at += strspn(at, ": \t");
    const size_t word = strcspn(at, ": \t");
    const char* name = memrchr(at, '/', word);
    name = name != NULL ? name + 1 : at;
    const size_t rest = word - (size_t)(name - at);
    if (word != 0 && !(rest == sizeof(kLibraryName) - 1 && memcmp(name, kLibraryName, rest) == 0)) {
      if (length + word + 2 > bytes) return 0;
      chain[length++] = ':';
      memcpy(chain + length, at, word);
      length += word;
      chain[length] = 0;
    }
    at += word;
  }
  return length < bytes;
}

/// Modes into `modes`; every other setting into the task's environment.
static void settings(spank_t spank, const char* words, int may_replace, char* modes) {
  char word[kMostWord], name[128], there[8];
  modes[0] = 0;
  while ((words = next_word(words, word)) != NULL) {
    if (setting_name(word, name)) {
      if (may_replace || !job_variable(spank, name, there, sizeof(there)))
        spank_setenv(spank, name, strchr(word, '=') + 1, 1);
    } else if (is_mode(word) && strlen(modes) + strlen(word) + 2 < kWords) {
      if (modes[0] != 0) strcat(modes, ",");
      strcat(modes, word);
    }
  }
}

/// In the process that becomes the task, with the user's rights.
int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  uint32_t step = 0;
  int task = 0;
  char inherited[kWords], before[kChain], modes[kWords], there[8];
  static char chain[kChain];
  if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS) return 0;
  if (step == SLURM_BATCH_SCRIPT ||
      step == SLURM_INTERACTIVE_STEP) {  // no tasks of a program: what srun within shall do
    if (asked[0] != 0) spank_setenv(spank, kInherited, asked, 1);
    return 0;
  }
  if (step > SLURM_MAX_NORMAL_STEP_ID) return 0;
  const int own = asked[0] != 0;
  const int by_user = own || job_variable(spank, kInherited, inherited, sizeof(inherited));
  const char* words = own ? asked : by_user ? inherited : site;
  const int preloads = job_variable(spank, kPreload, before, sizeof(before));
  const int fits = strlen(before) < sizeof(before) - 1;
  if (words[0] == 0 || has_word(words, "off")) return 0;
  // A default is below whatever the user says.
  if (!by_user && ((preloads && strstr(before, kLibraryName) != NULL) ||
                   (job_variable(spank, "RESIL_MODE", there, sizeof(there)) && strcmp(there, "off") == 0)))
    return 0;
  if (access(library, R_OK) != 0 || strpbrk(library, ": \t") != NULL) {
    if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0)
      slurm_error("--resil: %s cannot be read on this node; its tasks run without it", library);
    return 0;
  }
  if (!fits || !chain_with(before, chain, sizeof(chain))) {
    slurm_error("--resil: LD_PRELOAD would be too long; the tasks run without libresil.so");
    return 0;
  }
  settings(spank, words, by_user, modes);
  if (modes[0] != 0 && (by_user || !job_variable(spank, "RESIL_MODE", there, sizeof(there))))
    spank_setenv(spank, "RESIL_MODE", modes, 1);
  spank_setenv(spank, kPreload, chain, 1);
  return 0;
}
