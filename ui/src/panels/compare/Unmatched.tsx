import { SegmentedControl, Skeleton, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconSearch } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import tensors from '~/panels/tensors/tensors.module.css'
import { Failure } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { useView } from '~/state/store'
import classes from './compare.module.css'
import { MOST_UNMATCHED, useUnmatched, type UnmatchedQuery } from './queries'
import type { RankComparison, UnmatchedPage } from '~/api/types'
import { compareTexts } from './texts'

/** Operators or parameters without a counterpart in the other run, of A and B side by side. */
export function Unmatched({ result }: { result: RankComparison }) {
  const { t } = useTranslation(compareTexts)
  const { operators, operators_b, parameters, parameters_b } = result.unmatched
  const [kind, setKind] = useState<UnmatchedQuery['kind']>(
    operators + operators_b > 0 || parameters + parameters_b === 0 ? 'operators' : 'parameters',
  )
  const [words, setWords] = useState('')
  const [query] = useDebouncedValue(words.trim(), 250)
  const totals = kind === 'operators' ? [operators, operators_b] : [parameters, parameters_b]
  return (
    <>
      <div className={`heading ${tensors['bar'] ?? ''}`}>
        <SegmentedControl
          aria-label={t('kindLabel')}
          value={kind}
          data={[
            { value: 'operators', label: `${t('operatorsKind')} (${count(operators + operators_b)})` },
            { value: 'parameters', label: `${t('parametersKind')} (${count(parameters + parameters_b)})` },
          ]}
          onChange={(value) => setKind(value)}
        />
        <TextInput
          aria-label={t('unmatchedFilter')}
          placeholder={t('unmatchedFilter')}
          leftSection={<IconSearch size={13} />}
          w={220}
          value={words}
          onChange={(event) => setWords(event.currentTarget.value)}
        />
        <span className={tensors['total']}>{t('ofLastStep')}</span>
      </div>
      <div className={classes['columns']}>
        {(['a', 'b'] as const).map((side, position) => (
          <section
            key={side}
            className="fill"
            aria-label={t(position === 0 ? 'onlyInA' : 'onlyInB', { total: '' })}
          >
            <h3 className={classes['columnTitle']} data-testid={`unmatched-title-${side}`}>
              {t(position === 0 ? 'onlyInA' : 'onlyInB', { total: count(totals[position] ?? 0) })}
            </h3>
            <Side key={`${kind} ${query}`} query={{ side, kind, query }} rank={result.rank} />
          </section>
        ))}
      </div>
    </>
  )
}

function Side({ query, rank }: { query: UnmatchedQuery; rank: number }) {
  const { t } = useTranslation(compareTexts)
  const { data, error, refetch } = useUnmatched(query)
  if (error && !data) return <Failure error={error} retry={() => void refetch()} />
  if (!data) return <Skeleton flex={1} radius={0} />
  if (data.total === 0) {
    return <p className={classes['note']}>{t(query.query ? 'noneMatches' : 'allMatched')}</p>
  }
  return (
    <ul className={classes['list']} tabIndex={0} data-testid={`unmatched-${query.side}`}>
      {data.rows.map((row, position) => (
        <li key={position}>
          <Name row={row} isOfA={query.side === 'a'} rank={rank} />
          <small>{[row.type, row.phase && t(`phases.${row.phase}`)].filter(Boolean).join(' · ')}</small>
        </li>
      ))}
      {data.total > MOST_UNMATCHED && <li>{t('more', { count: data.total - MOST_UNMATCHED })}</li>}
    </ul>
  )
}

/** A button that selects the node for A; plain text for B, whose nodes are not on this page. */
function Name(props: { row: UnmatchedPage['rows'][number]; isOfA: boolean; rank: number }) {
  const selectNode = useView((view) => view.selectNode)
  const { row, isOfA, rank } = props
  if (!isOfA) {
    return (
      <span className={`${classes['ending'] ?? ''} mono`} title={row.name}>
        <bdi>{row.name}</bdi>
      </span>
    )
  }
  return (
    <button
      type="button"
      className={`${classes['ending'] ?? ''} ${classes['link'] ?? ''} mono`}
      title={row.name}
      onClick={() => selectNode({ rank, graph: '', name: row.name })}
    >
      <bdi>{row.name}</bdi>
    </button>
  )
}
