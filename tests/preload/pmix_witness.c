/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded behind the library: writes what a process asks of PMIx, one word a call, to the file PMIX_WITNESS.RANK
 * ("started" for an initialisation that found PMIx initialised already). With PMIX_WITNESS_REFUSE=RANK that rank's
 * "resil.presence" is refused.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* real(const char* name) {
  /* Open MPI 4 opens its plug-in, and libpmix with it, out of the global order. */
  void* library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
  return library ? dlsym(library, name) : NULL;
}

static const char* rank(void) {
  const char* text = getenv("PMIX_RANK");
  return text ? text : "none";
}

static void say(const char* word) {
  const char* path = getenv("PMIX_WITNESS");
  char name[4096];
  FILE* file;
  if (!path) return;
  snprintf(name, sizeof name, "%s.%s", path, rank());
  file = fopen(name, "a");
  if (file) {
    fprintf(file, "%s\n", word);
    fclose(file);
  }
}

int PMIx_Init(void* self, void* info, size_t count) {
  int (*initialized)(void) = (int (*)(void))real("PMIx_Initialized");
  say(initialized && initialized() ? "started" : "init");
  return ((int (*)(void*, void*, size_t))real("PMIx_Init"))(self, info, count);
}

int PMIx_Put(uint8_t scope, const char* key, void* value) {
  const char* refuse = getenv("PMIX_WITNESS_REFUSE");
  const int ours = strcmp(key, "resil.presence") == 0;
  say(ours ? "presence" : "put");
  if (ours && refuse && strcmp(refuse, rank()) == 0) return -1;
  return ((int (*)(uint8_t, const char*, void*))real("PMIx_Put"))(scope, key, value);
}

int PMIx_Commit(void) {
  say("commit");
  return ((int (*)(void))real("PMIx_Commit"))();
}

int PMIx_Finalize(const void* info, size_t count) {
  say("finalize");
  return ((int (*)(const void*, size_t))real("PMIx_Finalize"))(info, count);
}
