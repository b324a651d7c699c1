// What has to change in the output folder: planned first, written only when nothing is wrong.
#pragma once

#include <string>
#include <vector>

#include "diagnostics.h"
#include "output.h"

namespace tangle {

struct Transaction {
  std::string folder;
  std::vector<const Output*> missing;  ///< produced, not there
  std::vector<const Output*> changed;  ///< there, with other contents
  std::vector<std::string> removed;    ///< there, produced once (outputs.cmake says so), produced no longer
  std::vector<std::string> foreign;    ///< there, and never produced
  std::vector<std::string> leftovers;  ///< temporary files of an interrupted run
};

/// Compares the outputs with the folder. Symbolic links and folders in the place of files are errors.
Transaction plan(const std::string& folder, const std::vector<Output>& outputs, Diagnostics& diagnostics);

/// Writes what is missing or changed, removes what is no longer produced, leaves foreign files alone. With `keep`
/// not empty, the replaced and removed files are moved there first, so that an edit made in the wrong place is not lost.
void apply(const Transaction& transaction, Diagnostics& diagnostics, const std::string& keep = {});

/// One error for each difference, at the chapter line that it comes from.
void report_drift(const Program& program, const Transaction& transaction, Diagnostics& diagnostics);

}  // namespace tangle
