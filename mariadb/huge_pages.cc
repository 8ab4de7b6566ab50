#include "huge_pages.h"
#include "server.h"
#include <atomic>
#include <fstream>
#include <sys/prctl.h>

namespace weir {

static const char SETTING[]= "/sys/kernel/mm/transparent_hugepage/enabled";

// Off for all memory, and off except where advised, which not every system's headers have.
static const int OFF= 1;
static const unsigned long EXCEPT_ADVISED= 1 << 1;

static std::atomic<bool> are_refused;

static void refuse(const std::string &setting)
{
  if (!are_refused.exchange(true) && !setting.empty())
    sql_print_information(
        "WEIR: no huge pages for weir_memory, which slows writes down: %s is '%s' and not "
        "'madvise'",
        SETTING, setting.c_str());
}

void allow_huge_pages()
{
  if (are_refused || prctl(PR_GET_THP_DISABLE, 0UL, 0UL, 0UL, 0UL) != OFF ||
      prctl(PR_SET_THP_DISABLE, 1UL, EXCEPT_ADVISED, 0UL, 0UL) == 0)
    return;
  std::ifstream file(SETTING);
  std::string setting;
  std::getline(file, setting);
  if (setting.find("[madvise]") != std::string::npos)
    prctl(PR_SET_THP_DISABLE, 0UL, 0UL, 0UL, 0UL);
  else
    refuse(setting);
}

} // namespace weir
