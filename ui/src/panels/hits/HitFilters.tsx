import { Select } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import { useGraphs, useSession, useWatchpoints } from '~/api/queries'
import { useConditionWords } from '~/parts/conditionWords'
import { noFilter, type HitFilter } from './hitPages'
import classes from './hits.module.css'
import { hitsTexts } from './texts'

/** Filters by rank, graph and watchpoint; a filter with only one choice is not shown. */
export function HitFilters({ filter, change }: { filter: HitFilter; change: (filter: HitFilter) => void }) {
  const { t } = useTranslation(hitsTexts)
  const words = useConditionWords()
  const { data: session } = useSession()
  const { data: watchpoints = [] } = useWatchpoints()
  const ranks = session?.ranks ?? []
  // Graphs of the step shown; variants that ran in other steps have no hits now.
  const graphs = (useGraphs().data ?? []).flatMap((graph) => (graph.ran ? [graph.name] : []))
  const hitting = watchpoints.filter(
    (watchpoint) => watchpoint.hits > 0 || watchpoint.id === filter.watchpoint,
  )
  const set = (part: Partial<HitFilter>) => {
    const next = { ...filter, ...part }
    change(Object.values(next).every((value) => value === null) ? noFilter : next)
  }
  if (ranks.length < 2 && graphs.length < 2 && hitting.length < 2 && filter === noFilter) return null
  return (
    <div className={classes['filters']} role="group" aria-label={t('filters')}>
      {ranks.length > 1 && (
        <Select
          aria-label={t('rank')}
          placeholder={t('anyRank')}
          clearable
          data={ranks.map((record) => ({
            value: String(record.rank),
            label: t('rankOf', { rank: record.rank }),
          }))}
          value={filter.rank === null ? null : String(filter.rank)}
          onChange={(rank) => set({ rank: rank === null ? null : Number(rank) })}
        />
      )}
      {graphs.length > 1 && (
        <Select
          aria-label={t('graph')}
          placeholder={t('anyGraph')}
          clearable
          searchable
          data={graphs}
          value={filter.graph}
          onChange={(graph) => set({ graph })}
        />
      )}
      {(hitting.length > 1 || filter.watchpoint !== null) && (
        <Select
          aria-label={t('watchpoint')}
          placeholder={t('anyWatchpoint')}
          clearable
          comboboxProps={{ width: 260, position: 'bottom-start' }}
          data={hitting.map((watchpoint) => ({
            value: String(watchpoint.id),
            label: `${watchpoint.id} · ${words.label(watchpoint.condition)} (${watchpoint.hits})`,
          }))}
          value={filter.watchpoint === null ? null : String(filter.watchpoint)}
          onChange={(watchpoint) => set({ watchpoint: watchpoint === null ? null : Number(watchpoint) })}
        />
      )}
    </div>
  )
}
