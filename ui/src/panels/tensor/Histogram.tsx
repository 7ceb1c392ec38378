import { Skeleton, Switch, Text } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useState, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import type { Statistics } from '~/api/types'
import { Failure } from '~/parts/Notice'
import { count, percent, short } from '~/parts/numbers'
import { exactText } from './formats'
import { useHistogram, type ValueRequest } from './queries'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'

const BINS = 60
const MARGIN = { left: 56, right: 10, top: 10, bottom: 22 }

/** The distribution of the finite elements, with counts of the non-finite ones. */
export function Histogram(props: {
  request: ValueRequest
  slice: string
  statistics: Statistics | null
  dtype: string
}) {
  const { t } = useTranslation(tensorTexts)
  const { ref, width, height } = useElementSize()
  const { data, error, refetch } = useHistogram(props.request, props.slice, BINS)
  const [isLogarithmic, setLogarithmic] = useState(false)
  const [bin, setBin] = useState<number | null>(null)
  if (error) return <Failure error={error} retry={() => void refetch()} />

  const counts = data?.counts ?? []
  const edges = data?.edges ?? []
  const total = counts.reduce((sum, number) => sum + number, 0)
  const most = Math.max(1, ...counts)
  const area = {
    width: Math.max(0, width - MARGIN.left - MARGIN.right),
    height: Math.max(0, height - MARGIN.top - MARGIN.bottom),
  }
  const heightOf = (number: number) => {
    if (number === 0) return 0
    const part = isLogarithmic ? Math.log10(1 + number) / Math.log10(1 + most) : number / most
    // One element among millions is still visible.
    return Math.max(1.5, part * area.height)
  }
  const barWidth = area.width / Math.max(1, counts.length)
  const labelled = Math.max(1, Math.min(6, Math.floor(area.width / 90)))
  const steps = isLogarithmic
    ? [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].filter((tick) => tick <= most)
    : [most / 4, most / 2, (3 * most) / 4, most]
        .map(Math.round)
        .filter((tick, at, all) => tick > 0 && all.indexOf(tick) === at)
  const edge = (index: number) => exactText(edges[index] ?? NaN, 'float64')
  const edgeText = (index: number) => short(edges[index] ?? null)
  const pressed = (event: KeyboardEvent) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (move === undefined) return
    event.preventDefault()
    setBin(Math.max(0, Math.min(counts.length - 1, (bin ?? (move > 0 ? -1 : counts.length)) + move)))
  }
  const { statistics } = props
  const strange = statistics
    ? ([
        ['✕ NaN', statistics.nan_count],
        ['▲ +Inf', statistics.pos_inf_count],
        ['▼ -Inf', statistics.neg_inf_count],
      ] as const)
    : []
  const notFinite = strange.flatMap(([name, number]) => (number ? [`${name} ${count(number)}`] : []))
  return (
    <div className="fill">
      <div className={styles.chartHead}>
        <span>{t(`histogramOf.${props.slice === '' ? 'tensor' : 'slice'}`, { slice: props.slice })}</span>
        {notFinite.length > 0 && (
          <b className={styles.alarm}>{t('notDrawn', { what: notFinite.join(', ') })}</b>
        )}
        <Switch
          ml="auto"
          size="xs"
          label={t('logCounts')}
          checked={isLogarithmic}
          onChange={(event) => setLogarithmic(event.currentTarget.checked)}
        />
      </div>
      <div ref={ref} className={styles.chart}>
        {!data ? (
          <Skeleton h="100%" />
        ) : total === 0 ? (
          <Text className={styles.centred}>{statistics?.count === 0 ? t('noElements') : t('noFinite')}</Text>
        ) : (
          <svg
            width={width}
            height={height}
            role="application"
            tabIndex={0}
            aria-label={t('histogramLabel', {
              count: count(total),
              least: edgeText(0),
              most: edgeText(counts.length),
            })}
            data-testid="histogram"
            onKeyDown={pressed}
            onMouseLeave={() => setBin(null)}
          >
            <g transform={`translate(${MARGIN.left} ${MARGIN.top})`}>
              {steps.map((step) => (
                <g key={step} transform={`translate(0 ${area.height - heightOf(step)})`}>
                  <line x2={area.width} className={styles.gridLine} />
                  <text x={-6} dy="0.32em" textAnchor="end" className={styles.axisText}>
                    {short(step)}
                  </text>
                </g>
              ))}
              {counts.map((number, index) => (
                <g key={index} onMouseEnter={() => setBin(index)}>
                  <rect x={index * barWidth} width={barWidth} height={area.height} fill="transparent" />
                  <rect
                    className={styles.histogramBar}
                    data-active={index === bin || undefined}
                    x={index * barWidth + 0.5}
                    width={Math.max(1, barWidth - 1)}
                    y={area.height - heightOf(number)}
                    height={heightOf(number)}
                  />
                </g>
              ))}
              <line x2={area.width} y1={area.height} y2={area.height} className={styles.axisLine} />
              {Array.from({ length: labelled + 1 }, (_, index) => {
                const at = Math.round((index * counts.length) / labelled)
                return (
                  <text
                    key={at}
                    x={at * barWidth}
                    y={area.height + 14}
                    textAnchor={index === 0 ? 'start' : index === labelled ? 'end' : 'middle'}
                    className={styles.axisText}
                  >
                    {edgeText(at)}
                  </text>
                )
              })}
            </g>
          </svg>
        )}
      </div>
      <div className={styles.bar} aria-live="polite" data-testid="element-bar">
        <span className="mono">
          {bin !== null && data
            ? t('bin', {
                from: edge(bin),
                to: edge(bin + 1),
                count: count(counts[bin] ?? 0),
                percent: percent(counts[bin] ?? 0, total),
              })
            : t('histogramLabel', {
                count: count(total),
                least: edgeText(0),
                most: edgeText(counts.length),
              })}
        </span>
      </div>
    </div>
  )
}
