// The last result of a bench beside what it is measured against.
#pragma once

#include <string>
#include <string_view>

#include "stores.h"

namespace weave {

/// One table with a plot. `page` is where it will stand.
std::string bench_table(const Stores& stores, std::string_view id, std::string_view page);

/// What the bench measures, in words.
std::string what_of(const Bench& bench);

/// "AMD EPYC, 2026-11-30".
std::string machine_and_date(const Record& record);

}  // namespace weave
