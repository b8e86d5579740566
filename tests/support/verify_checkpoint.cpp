// SPDX-License-Identifier: BSD-3-Clause
//
// verify_checkpoint FOLDER: reads and verifies every byte of a checkpoint.
#include <cstdio>
#include <exception>

#include "accordion/checkpoint/checkpoint_reader.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: verify_checkpoint FOLDER\n", stderr);
    return 2;
  }
  try {
    accordion::CheckpointReader(argv[1]).verify();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
