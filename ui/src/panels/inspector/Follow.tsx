import { Select, Skeleton } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useState, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { get } from '~/api/client'
import { keys, path, useShown } from '~/api/queries'
import type { StatisticsRow, TensorRecord } from '~/api/types'
import { digitsBetween, short } from '~/parts/numbers'
import { useView, withoutStep } from '~/state/store'
import { pointsOf, segments, STATISTICS, type Point, type StatisticName } from './history'
import styles from './inspector.module.css'
import { inspectorTexts } from './texts'

const HEIGHT = 68
const MARGIN = { left: 8, right: 8, top: 12, bottom: 4 }

/** A statistic of a tensor over all steps at which it is known. */
export function Follow({ record }: { record: TensorRecord }) {
  const { t } = useTranslation(inspectorTexts)
  const run = useView((view) => view.run)
  const [statistic, setStatistic] = useState<StatisticName>('abs_mean')
  const address = withoutStep(record.address)
  const shown = useShown()
  const { data, isPending } = useQuery({
    queryKey: keys.graphs(run, 'history', address, shown),
    queryFn: ({ signal }) =>
      get<StatisticsRow[]>(path(run, '/tensor/history'), { address: record.address }, signal),
    placeholderData: (before, last) =>
      last?.queryKey.includes(address) ? keepPreviousData(before) : undefined,
  })
  return (
    <section data-testid="tensor-history">
      <div className={styles.sectionHead}>
        <h3>{t('follow')}</h3>
        <Select
          w={112}
          ml="auto"
          aria-label={t('statistic')}
          allowDeselect={false}
          value={statistic}
          onChange={(value) => setStatistic(value ?? 'abs_mean')}
          data={STATISTICS.map((name) => ({ value: name, label: t(`statistics.${name}`) }))}
        />
      </div>
      {isPending ? (
        <Skeleton h={HEIGHT + 18} />
      ) : (
        <Curve points={pointsOf(data ?? [], statistic)} step={record.step} statistic={statistic} />
      )}
    </section>
  )
}

function Curve({ points, step, statistic }: { points: Point[]; step: number; statistic: StatisticName }) {
  const { t } = useTranslation(inspectorTexts)
  const { ref, width } = useElementSize()
  const [pointed, setPointed] = useState<number | null>(null)
  const first = points[0]
  const last = points.at(-1)
  if (!first || !last) return <p className={styles.note}>{t('noHistory')}</p>
  const values = points.flatMap((point) => point.value ?? [])
  const [least, most] = [Math.min(...values), Math.max(...values)]
  const area = {
    width: Math.max(0, width - MARGIN.left - MARGIN.right),
    height: HEIGHT - MARGIN.top - MARGIN.bottom,
  }
  const across = (number: number) =>
    MARGIN.left +
    (last.step === first.step ? 0.5 : (number - first.step) / (last.step - first.step)) * area.width
  const down = (value: number) =>
    MARGIN.top + (most === least ? 0.5 : (most - value) / (most - least)) * area.height
  const current = points[pointed ?? points.findIndex((point) => point.step === step)] ?? last
  const marks = [current.hasNan ? 'NaN' : '', current.hasInf ? 'Inf' : ''].filter(Boolean).join(', ')
  const pressed = (event: KeyboardEvent) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (move === undefined) return
    event.preventDefault()
    setPointed(Math.max(0, Math.min(points.length - 1, (pointed ?? points.indexOf(current)) + move)))
  }
  return (
    <>
      <svg
        ref={ref}
        className={styles.curve}
        height={HEIGHT}
        role="application"
        tabIndex={0}
        aria-label={t('curve', {
          statistic: t(`statistics.${statistic}`),
          count: points.length,
          first: first.step,
          last: last.step,
        })}
        onKeyDown={pressed}
        onMouseLeave={() => setPointed(null)}
        onMouseMove={(event) => {
          const at = event.clientX - event.currentTarget.getBoundingClientRect().left
          const distances = points.map((point) => Math.abs(across(point.step) - at))
          setPointed(distances.indexOf(Math.min(...distances)))
        }}
      >
        <line x1={across(step)} x2={across(step)} y2={HEIGHT} className={styles.present} />
        {segments(points).map((part) =>
          part.length === 1 && part[0]?.value !== undefined ? (
            <circle
              key={part[0].step}
              cx={across(part[0].step)}
              cy={down(part[0].value ?? 0)}
              r={2.5}
              className={styles.point}
            />
          ) : (
            <polyline
              key={part[0]?.step}
              className={styles.polyline}
              points={part.map((point) => `${across(point.step)},${down(point.value ?? 0)}`).join(' ')}
            />
          ),
        )}
        {points
          .filter((point) => point.hasNan || point.hasInf)
          .map((point) => (
            <text
              key={point.step}
              x={across(point.step)}
              y={9}
              className={styles.curveMark}
              textAnchor="middle"
            >
              {point.hasNan ? '✕' : '▲'}
            </text>
          ))}
        {current.value !== null && (
          <circle cx={across(current.step)} cy={down(current.value)} r={3.5} className={styles.shownPoint} />
        )}
      </svg>
      <div className={styles.curveText} aria-live="polite">
        <span className="mono">
          {t(points.length === 1 ? 'oneStep' : 'atStep', { step: current.step, value: short(current.value) })}
        </span>
        {marks && <b className={styles.alarm}>{t('stepMarks', { marks })}</b>}
        {values.length > 1 && (
          <span className={styles.range}>
            {short(least, digitsBetween(least, most))} … {short(most, digitsBetween(least, most))}
          </span>
        )}
      </div>
    </>
  )
}
