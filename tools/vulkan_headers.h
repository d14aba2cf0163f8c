/* Read before each C++ file of a build with GGML_VULKAN: what llama.cpp uses of Vulkan's headers and
 * those before 1.3.272 (Debian 12 has 1.3.239) do not have. It is for validation layers, which are
 * off, so that a driver sees no more of it than a structure to pass over. */
#pragma once
#if defined(__cplusplus) && __has_include(<vulkan/vulkan_core.h>)
#include <vulkan/vulkan_core.h>
#if VK_HEADER_VERSION < 272
#include <cstdint>
#include <vector>
namespace vk {
enum class LayerSettingTypeEXT { eBool32 = 0 };
struct LayerSettingEXT {
    const char *layer;
    const char *name;
    LayerSettingTypeEXT type;
    uint32_t count;
    const void *values;
};
struct LayerSettingsCreateInfoEXT {
    VkStructureType type = static_cast<VkStructureType>(1000496000);
    const void *next = nullptr;
    uint32_t count;
    const LayerSettingEXT *settings;
    LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> &all)
        : count(static_cast<uint32_t>(all.size())), settings(all.data()) {}
};
}
#endif
#endif
