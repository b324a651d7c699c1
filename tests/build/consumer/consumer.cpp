#include <cstdio>

#include "rose/core/error.h"
#include "rose/core/files.h"

int main() {
  try {
    rose::core::read_file("/nowhere/at/all");
  } catch (const rose::core::Error& error) {
    std::printf("not here: %s\n", error.what());
    return 0;
  }
  return 1;
}
