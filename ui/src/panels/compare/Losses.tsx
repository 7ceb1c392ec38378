import { SegmentedControl, Skeleton, useComputedColorScheme } from '@mantine/core'
import { IconChartLine } from '~/parts/icons'
import { lazy, Suspense, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { COLOURS } from '~/panels/curves/colours'
import curves from '~/panels/curves/curves.module.css'
import { nearestStep } from '~/panels/curves/series'
import { useGoToStep } from '~/panels/overview/useGoTo'
import { Failure, Notice } from '~/parts/Notice'
import classes from './compare.module.css'
import { lossSeries } from './lossSeries'
import { useLosses } from './queries'
import type { Comparison } from '~/api/types'
import { compareTexts } from './texts'

const Chart = lazy(() => import('~/panels/curves/Chart'))

/** The losses of both runs in one chart, with the conclusion. */
export default function Losses({ comparison }: { comparison: Comparison }) {
  const { t } = useTranslation(compareTexts)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const { data: session } = useSession()
  const [isLogarithmic, setLogarithmic] = useState(false)
  const goToStep = useGoToStep()
  const { data, error, refetch } = useLosses()
  const series = useMemo(
    () => lossSeries(data?.points ?? [], [comparison.a.title, comparison.b.title]),
    [data, comparison.a.title, comparison.b.title],
  )
  const colours = useMemo(
    () => new Map(series.map(({ key }, index) => [key, COLOURS[theme][index] ?? ''])),
    [series, theme],
  )
  if (error && !data) return <Failure error={error} retry={() => void refetch()} />
  if (!data) return <Skeleton flex={1} radius={0} />
  if (data.points.length === 0) {
    return (
      <Notice icon={<IconChartLine size={32} />} title={t('noLoss')} testId="compare-no-loss">
        {data.sentence}
      </Notice>
    )
  }
  return (
    <>
      <div className={`heading ${curves['bar'] ?? ''}`}>
        <span
          className={classes['grown']}
          data-testid="compare-loss-sentence"
          title={[data.meaning, ...data.notes].join('\n')}
        >
          {data.sentence}
        </span>
        <SegmentedControl
          ml="auto"
          aria-label={t('scale')}
          value={isLogarithmic ? 'logarithmic' : 'linear'}
          data={(['linear', 'logarithmic'] as const).map((value) => ({ value, label: t(value) }))}
          onChange={(value) => setLogarithmic(value === 'logarithmic')}
        />
      </div>
      <div className={curves['keys']}>
        {series.map((curve) => (
          <span key={curve.key} className={curves['key']} data-testid="compare-loss">
            <span
              className={curves['swatch']}
              style={{ background: colours.get(curve.key), borderColor: colours.get(curve.key) }}
            />
            {curve.name}
          </span>
        ))}
      </div>
      <Suspense fallback={<Skeleton style={{ flex: 1 }} radius={0} />}>
        <Chart
          series={series}
          colours={colours}
          step={session?.state === 'running' ? null : (session?.step ?? null)}
          lastStep={data.points.at(-1)?.step ?? 0}
          isLogarithmic={isLogarithmic}
          theme={theme}
          label={t('lossTitle')}
          words={{
            kind: () => t('loss'),
            step: (step) => t('step', { step }),
            nan: t('nan'),
            infinite: t('nan'),
          }}
          onStep={(at) => {
            const step = nearestStep(series, at)
            if (step !== null) goToStep(step)
          }}
        />
      </Suspense>
    </>
  )
}
