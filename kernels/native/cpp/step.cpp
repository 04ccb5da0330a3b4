#include "step.hpp"

#include <cstring>

namespace native {

bool Step::find(const char* buffer, size_t bytes) {
    size_t end = 0;
    auto count = [&](int32_t& value) {
        if (bytes - end < sizeof(value)) return false;
        memcpy(&value, buffer + end, sizeof(value));
        end += sizeof(value);
        return value >= 0;
    };
    auto array = [&](auto& values, uint64_t size) {
        size_t begin = (end + kStepAlignment - 1) / kStepAlignment * kStepAlignment;
        if (begin > bytes || size > (bytes - begin) / sizeof(*values)) return false;
        values = (decltype(values + 0))(buffer + begin);
        end = begin + size * sizeof(*values);
        return true;
    };
    Step& to = *this;
#define COUNT(name) count(to.name) &&
    if (!(STEP_COUNTS(COUNT) true)) return false;
#undef COUNT
    // Products of two counts fit into 64 bits.
#define COUNT(name) const uint64_t name = (uint64_t)to.name;
#define ARRAY(type, name, size) array(to.name, size) &&
    STEP_COUNTS(COUNT)
    return STEP_ARRAYS(ARRAY) true;
#undef COUNT
#undef ARRAY
}

}  // namespace native
