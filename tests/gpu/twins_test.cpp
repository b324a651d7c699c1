// One line per operation: its name, how many cases to draw, its twin.
#include "twins.h"

namespace rose::kernels::gpu {}  // namespace rose::kernels::gpu
