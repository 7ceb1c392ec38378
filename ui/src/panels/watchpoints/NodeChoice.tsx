import { Button, Select, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path } from '~/api/queries'
import type { SearchPage } from '~/api/types'
import { useView } from '~/state/store'
import classes from './dialog.module.css'
import { PRESETS, WITH_ARGUMENT, type Draft } from './draft'
import { watchpointsTexts } from './texts'

const KINDS: Record<string, string> = { weights: 'weight', gradients: 'gradient', activations: 'activation' }
const PAUSE_MS = 250

/** The choice of nodes to watch: a rule, and ticks in the tree. */
export function NodeChoice(props: {
  draft: Draft
  message: string | undefined
  change: (part: Partial<Draft>) => void
}) {
  const { draft, message, change } = props
  const { t } = useTranslation(watchpointsTexts)
  const hasArgument = WITH_ARGUMENT.has(draft.preset)
  const matches = useMatches(draft)
  const edits = draft.edits.length
  return (
    <div className={classes['where']}>
      <div className={classes['row']}>
        <Select
          label={t('where')}
          allowDeselect={false}
          data={PRESETS.map((value) => ({ value, label: t(`presets.${value}`) }))}
          value={draft.preset}
          onChange={(preset) => preset !== null && change({ preset })}
          maxDropdownHeight={320}
        />
        {hasArgument && (
          <TextInput
            label={t(`argument.${draft.preset}`)}
            placeholder={t(`examples.${draft.preset}`)}
            required
            value={draft.argument}
            error={message ?? matches.error?.message}
            onChange={(event) => change({ argument: event.currentTarget.value })}
          />
        )}
      </div>
      <div className={classes['hint']} data-testid="watchpoint-matches">
        {[
          matches.data && t('matches', { count: matches.data.total }),
          edits > 0 &&
            t(draft.preset === 'none' ? 'editsOnly' : 'edits', { count: edits, first: draft.edits[0]?.path }),
          edits === 0 && t('ticksLater'),
        ]
          .filter(Boolean)
          .join(' · ')}
        {edits > 0 && (
          <Button
            size="compact-xs"
            variant="subtle"
            ml={6}
            onClick={() => change({ edits: [], ...(draft.preset === 'none' ? { preset: 'all' } : {}) })}
          >
            {t('dropEdits')}
          </Button>
        )}
      </div>
    </div>
  )
}

/** The number of nodes that a rule selects, if a search can determine it. */
function useMatches(draft: Draft) {
  const run = useView((view) => view.run)
  const [argument] = useDebouncedValue(draft.argument.trim(), PAUSE_MS)
  const kind = KINDS[draft.preset]
  const byName = draft.preset === 'name' && argument !== ''
  const query = byName ? { name: argument, regex: true, case_sensitive: true } : { kind }
  return useQuery({
    queryKey: keys.graphs(run, 'matches', query),
    queryFn: ({ signal }) => get<SearchPage>(path(run, '/nodes'), { ...query, limit: 1 }, signal),
    enabled: run !== '' && (byName || kind !== undefined),
  })
}
