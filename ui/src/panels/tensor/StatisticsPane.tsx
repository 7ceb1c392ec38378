import { SegmentedControl, Skeleton, Tooltip } from '@mantine/core'
import { IconAlertTriangle } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { MEASURES, type Count, type Measure } from '~/api/statistics'
import type { Statistics } from '~/api/types'
import { count, percent } from '~/parts/numbers'
import { exactText, formatted, type NumberFormat } from './formats'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'
import { useTensorViews } from './views'

/** Format for three columns side by side; a tooltip shows the full number. */
const NARROW: NumberFormat = { notation: 'auto', digits: 3 }
const rough = new Intl.NumberFormat('en-US', { notation: 'compact', maximumSignificantDigits: 3 })
const STRANGE = ['nan_count', 'pos_inf_count', 'neg_inf_count'] as const
const SIGNS = ['zero_count', 'negative_count', 'positive_count'] as const

/** A column of statistics with its title. */
export interface Side {
  title: string
  statistics: Statistics | null
}

/** The statistics of the value shown; for a difference, also of both sides. */
export function StatisticsPane(props: {
  sides: Side[]
  isLoading: boolean
  error: Error | null
  extent: 'tensor' | 'slice'
  onExtent: (extent: 'tensor' | 'slice') => void
  canSlice: boolean
}) {
  const { t } = useTranslation(tensorTexts)
  const { sides } = props
  const allStatistics = sides.flatMap((side) => side.statistics ?? [])
  const isBool = allStatistics.length > 0 && sides.length === 1 && allStatistics[0]?.dtype === 'bool'
  return (
    <section aria-label={t('statistics')} data-testid="tensor-statistics">
      <SegmentedControl
        className={styles.segments ?? ''}
        fullWidth
        m={6}
        aria-label={t('extent')}
        value={props.extent}
        onChange={(value) => props.onExtent(value === 'slice' ? 'slice' : 'tensor')}
        data={[
          { value: 'tensor', label: t('wholeTensor') },
          { value: 'slice', label: t('thisSlice'), disabled: !props.canSlice },
        ]}
      />
      {allStatistics.length === 0 && !props.isLoading ? (
        <p className={styles.note}>
          {props.error ? t('statisticsFailed', { message: props.error.message }) : t('noStatistics')}
        </p>
      ) : (
        <table className={styles.statistics}>
          {sides.length > 1 && (
            <thead>
              <tr>
                <th aria-label={t('statistics')} />
                {sides.map((side) => (
                  <th key={side.title} scope="col">
                    {side.title}
                  </th>
                ))}
              </tr>
            </thead>
          )}
          <tbody>
            {!isBool &&
              MEASURES.map((name) => (
                <Row key={name} name={t(`names.${name}`)} hint={t('finiteOnly')}>
                  {sides.map((side) => (
                    <NumberCell key={side.title} side={side} name={name} isNarrow={sides.length > 1} />
                  ))}
                </Row>
              ))}
            {!isBool &&
              STRANGE.map((name) => (
                <Row
                  key={name}
                  name={t(`names.${name}`)}
                  isAlarm={allStatistics.some((statistics) => statistics[name] > 0)}
                >
                  {sides.map((side) => (
                    <CountCell key={side.title} side={side} name={name} isNarrow={sides.length > 1} />
                  ))}
                </Row>
              ))}
            {(isBool ? (['positive_count', 'zero_count'] as const) : SIGNS).map((name) => (
              <Row
                key={name}
                name={isBool ? t(name === 'zero_count' ? 'names.false' : 'names.true') : t(`names.${name}`)}
              >
                {sides.map((side) => (
                  <CountCell key={side.title} side={side} name={name} isNarrow={sides.length > 1} />
                ))}
              </Row>
            ))}
            <Row name={t('names.count')}>
              {sides.map((side) => (
                <CountCell key={side.title} side={side} name="count" isNarrow={sides.length > 1} />
              ))}
            </Row>
          </tbody>
        </table>
      )}
      {allStatistics.some((statistics) => statistics.partial) && (
        <p className={styles.note}>{t('partial')}</p>
      )}
    </section>
  )
}

function Row(props: { name: string; hint?: string; isAlarm?: boolean; children: React.ReactNode }) {
  return (
    <tr data-alarm={props.isAlarm || undefined}>
      <Tooltip label={props.hint} disabled={props.hint === undefined} position="right" multiline maw={260}>
        <th scope="row">
          {props.isAlarm && <IconAlertTriangle size={12} aria-hidden />}
          {props.name}
        </th>
      </Tooltip>
      {props.children}
    </tr>
  )
}

function Waiting() {
  return <Skeleton h={12} my={2} ml="auto" w={48} />
}

function NumberCell(props: { side: Side; name: Measure; isNarrow: boolean }) {
  const { t } = useTranslation(tensorTexts)
  const format = useTensorViews((state) => state.format)
  const { statistics } = props.side
  if (!statistics) {
    return (
      <td>
        <Waiting />
      </td>
    )
  }
  const number = statistics[props.name]
  if (number === null || number === undefined) {
    const reason = statistics.partial ? t('unknown') : t('noFiniteOnes')
    return <td title={reason}>–</td>
  }
  return <td title={exactText(number, 'float64')}>{formatted(number, props.isNarrow ? NARROW : format)}</td>
}

function CountCell(props: { side: Side; name: Count; isNarrow: boolean }) {
  const { t } = useTranslation(tensorTexts)
  const { statistics } = props.side
  if (!statistics) {
    return (
      <td>
        <Waiting />
      </td>
    )
  }
  if (statistics.unknown.includes(props.name)) return <td title={t('unknown')}>?</td>
  const number = statistics[props.name]
  const share = percent(number, statistics.count)
  return (
    <td title={t('countOf', { count: count(number), all: count(statistics.count), percent: share })}>
      {props.isNarrow ? (
        number < 1e5 ? (
          count(number)
        ) : (
          rough.format(number)
        )
      ) : (
        <>
          {count(number)}
          {number > 0 && props.name !== 'count' && <span className={styles.share}>{share}</span>}
        </>
      )}
    </td>
  )
}
