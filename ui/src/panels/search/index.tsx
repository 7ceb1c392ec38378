import { Button, SegmentedControl, Select, Skeleton, useComputedColorScheme } from '@mantine/core'
import { IconArrowLeft } from '~/parts/icons'
import { lazy, Suspense, useCallback, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import type { SearchResult, Trial } from '~/api/types'
import { Failure } from '~/parts/Notice'
import { useView } from '~/state/store'
import type { Ranges } from './Chart'
import { useSearchResult } from './queries'
import { inRanges } from './ranges'
import classes from './search.module.css'
import { Side } from './Side'
import { searchTexts } from './texts'
import { TrialTable } from './TrialTable'

const Chart = lazy(() => import('./Chart'))

/** A hyper-parameter search: charts of the trials, their table, the best configuration and failures. */
export default function Search() {
  const name = useView((view) => view.search)
  const { data, error, refetch } = useSearchResult(name)
  return (
    <div className="fill" data-testid="panel-search">
      {data ? (
        <Shown key={name} name={name} result={data} />
      ) : error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <Skeleton m="sm" style={{ flex: 1 }} />
      )}
    </div>
  )
}

const STATES = ['complete', 'pruned', 'failed', 'running'] as const

function Shown({ name, result }: { name: string; result: SearchResult }) {
  const { t } = useTranslation(searchTexts)
  const openRun = useView((view) => view.openRun)
  const theme = useComputedColorScheme('light', { getInitialValueInEffect: false })
  const [kind, setKind] = useState<'parallel' | 'history'>('parallel')
  const [target, setTarget] = useState(0)
  const [ranges, setRanges] = useState<Ranges>({})
  const [chosen, setChosen] = useState<ReadonlySet<number> | null>(null)
  const [round, setRound] = useState(0)
  const words = useMemo(
    () => ({ best: t('bestSoFar'), trial: (number: number) => t('trial', { number }) }),
    [t],
  )
  const onRange = useCallback(
    (axis: string, intervals: [number, number][]) =>
      setRanges((before) => ({ ...before, [axis]: intervals })),
    [],
  )
  const trials = result.trials.filter(
    (trial) => (chosen === null || chosen.has(trial.number)) && inRanges(trial, result, ranges),
  )
  const showAll = () => {
    setRanges({})
    setChosen(null)
    setRound(round + 1)
  }
  const counts = STATES.map(
    (state) => [state, result.trials.filter((trial) => trial.state === state).length] as const,
  )
  return (
    <div className={classes['page']}>
      <div className={classes['bar']}>
        <Button
          size="compact-sm"
          variant="default"
          leftSection={<IconArrowLeft size={14} />}
          onClick={() => openRun('')}
        >
          {t('list')}
        </Button>
        <h2 className={classes['title']}>{name}</h2>
        <span className={classes['quiet']} data-testid="search-counts">
          {t('count', { count: result.trials.length })}
          {counts.map(([state, many]) => (many > 0 ? ` · ${many} ${t(`states.${state}`)}` : ''))}
        </span>
      </div>
      <div className={classes['body']}>
        <div className={classes['main']}>
          <div className={classes['charts']}>
            <div className={classes['tools']}>
              <SegmentedControl
                aria-label={t('charts')}
                size="xs"
                value={kind}
                data={(['parallel', 'history'] as const).map((value) => ({ value, label: t(value) }))}
                onChange={(value) => {
                  setKind(value)
                  showAll()
                }}
              />
              {result.targets.length > 1 && (
                <Select
                  aria-label={t('target')}
                  size="xs"
                  w={160}
                  allowDeselect={false}
                  value={String(target)}
                  data={result.targets.map(({ name: label }, index) => ({ value: String(index), label }))}
                  onChange={(value) => setTarget(Number(value ?? 0))}
                />
              )}
              {kind === 'parallel' && <span className={classes['quiet']}>{t('parallelHelp')}</span>}
            </div>
            <Suspense fallback={<Skeleton style={{ flex: 1 }} radius={0} />}>
              <Chart
                key={`${kind} ${round}`}
                kind={kind}
                result={result}
                target={target}
                theme={theme}
                words={words}
                label={
                  kind === 'parallel'
                    ? t('parallelLabel', { count: result.trials.length })
                    : t('historyLabel')
                }
                onRange={onRange}
              />
            </Suspense>
          </div>
          <div className="fill">
            <div className={classes['tools']}>
              <span className={classes['quiet']} data-testid="search-chosen" role="status">
                {t('chosen', { shown: trials.length, all: result.trials.length })}
              </span>
              {trials.length < result.trials.length && (
                <Button size="compact-xs" variant="default" onClick={showAll}>
                  {t('all')}
                </Button>
              )}
            </div>
            <TrialTable result={result} trials={trials} />
          </div>
        </div>
        <Side
          result={result}
          choose={(these: Trial[]) => setChosen(new Set(these.map(({ number }) => number)))}
        />
      </div>
    </div>
  )
}
