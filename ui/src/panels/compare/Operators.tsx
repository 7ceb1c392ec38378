import { Button, SegmentedControl, Select, Skeleton, TextInput, Tooltip } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconArrowsDiff, IconSearch } from '~/parts/icons'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import tensors from '~/panels/tensors/tensors.module.css'
import { ActionButton } from '~/parts/ActionButton'
import { IconPalette } from '~/parts/icons'
import { Failure, Notice } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { noFilter, useCompareState, type OperatorFilter } from './compareState'
import { OperatorTable } from './OperatorTable'
import { useFirstOperators, type Shown } from './queries'
import { compareTexts } from './texts'

const PHASES = ['forward', 'backward', 'update'] as const
const ALL = 'all'

/** All matched operators of a step in execution order, with their distances. */
export function Operators({ shown }: { shown: Shown }) {
  const { t } = useTranslation(compareTexts)
  const filter = useCompareState((state) => state.filter)
  const set = useCompareState((state) => state.set)
  const [query] = useDebouncedValue(filter.query.trim(), 250)
  const { phase, only, sort, descending } = filter
  const requestedFilter = useMemo(
    (): OperatorFilter => ({ phase, only, query, sort, descending }),
    [phase, only, query, sort, descending],
  )
  const { data, error, refetch } = useFirstOperators(requestedFilter)
  const change = (to: Partial<OperatorFilter>) => set({ filter: { ...filter, ...to } })
  if (shown.step === null) {
    return (
      <Notice icon={<IconArrowsDiff size={32} />} title={t('noOperators')} testId="compare-no-operators">
        {t('noOperatorsText')}
      </Notice>
    )
  }
  const isFiltered = query !== '' || phase !== '' || only !== 'all'
  return (
    <>
      <div className={`heading ${tensors['bar'] ?? ''}`}>
        <Tooltip label={t('hint')}>
          <TextInput
            aria-label={t('filter')}
            placeholder={t('filterHint')}
            leftSection={<IconSearch size={13} />}
            flex="1 1 130px"
            miw={130}
            maw={260}
            value={filter.query}
            onChange={(event) => change({ query: event.currentTarget.value })}
          />
        </Tooltip>
        <SegmentedControl
          aria-label={t('onlyLabel')}
          data-testid="compare-only"
          value={only}
          data={(['all', 'different', 'divergent'] as const).map((value) => ({
            value,
            label: t(`only.${value}`),
          }))}
          onChange={(value) => change({ only: value })}
        />
        <Select
          aria-label={t('phaseLabel')}
          w={112}
          allowDeselect={false}
          value={phase || ALL}
          data={[
            { value: ALL, label: t('allPhases') },
            ...PHASES.map((value) => ({ value: value, label: t(`phases.${value}`) })),
          ]}
          onChange={(value) => change({ phase: PHASES.find((name) => name === value) ?? '' })}
        />
        <ActionButton id="compare.colours" icon={<IconPalette size={16} />} />
        {data && (
          <span className={tensors['total']} data-testid="compare-total">
            {t('total', { count: data.total, number: count(data.total) })}
          </span>
        )}
      </div>
      {error && !data ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : !data ? (
        <Skeleton height="100%" radius={0} />
      ) : data.total > 0 ? (
        <OperatorTable
          key={JSON.stringify([shown.comparison.id, shown.result.rank, shown.step, requestedFilter])}
          filter={requestedFilter}
          total={data.total}
          firstAt={data.first ?? null}
          shown={shown}
          onSort={(column) =>
            change({
              sort: column,
              // Errors are sorted by the largest first.
              descending: sort === column ? !descending : column === 'added' || column === 'relative',
            })
          }
        />
      ) : isFiltered ? (
        <Notice title={t('noMatch')}>
          <Button variant="default" onClick={() => set({ filter: noFilter })}>
            {t('clear')}
          </Button>
        </Notice>
      ) : (
        <Notice icon={<IconArrowsDiff size={32} />} title={t('noOperators')}>
          {t('noOperatorsText')}
        </Notice>
      )}
    </>
  )
}
