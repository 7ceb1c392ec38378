import { UnstyledButton } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import type { SearchResult, Trial } from '~/api/types'
import { conditionTexts } from '~/parts/conditionTexts'
import { CopyButton } from '~/parts/CopyButton'
import { percent } from '~/parts/numbers'
import classes from './search.module.css'
import { searchTexts } from './texts'
import { causes, type Cause } from './trials'

/** The best configuration, the importance of parameters, and failures; a click on a cause selects its trials. */
export function Side({ result, choose }: { result: SearchResult; choose: (trials: Trial[]) => void }) {
  const { t } = useTranslation(searchTexts)
  const [best] = result.best
  const allCauses = causes(result.trials)
  const shares = Object.entries(result.importance)
  return (
    <aside className={classes['side']} aria-label={t('side')} tabIndex={0}>
      <section data-testid="search-best">
        <h3>{best === undefined ? t('best') : t('bestTrial', { number: best })}</h3>
        {best === undefined ? (
          <div className={classes['quiet']}>{t('noBest')}</div>
        ) : (
          <>
            <Code text={result.best_yaml.trimEnd()} label={t('yaml')} />
            <Code text={result.best_command} label={t('command')} />
          </>
        )}
      </section>
      <section data-testid="search-importance">
        <h3 title={t('importanceHelp')}>{t('importance')}</h3>
        {shares.length === 0 && <div className={classes['quiet']}>{t('noImportance')}</div>}
        <div className={classes['bars']}>
          {shares.map(([name, share]) => (
            <Share key={name} name={name} share={share} />
          ))}
        </div>
      </section>
      <section data-testid="search-ill">
        <h3>{t('ill')}</h3>
        {allCauses.length === 0 && <div className={classes['quiet']}>{t('nothingIll')}</div>}
        {allCauses.map((cause) => (
          <CauseRow
            key={`${cause.condition} ${String(cause.isWarning)}`}
            cause={cause}
            choose={() => choose(cause.trials)}
          />
        ))}
      </section>
    </aside>
  )
}

function Share({ name, share }: { name: string; share: number }) {
  return (
    <>
      <span title={name}>{name}</span>
      <div className={classes['track']}>
        <div className={classes['share']} style={{ width: `${100 * share}%` }} />
      </div>
      <span>{percent(Math.round(1000 * share) / 10, 100)}</span>
    </>
  )
}

function Code({ text, label }: { text: string; label: string }) {
  return (
    <div className={classes['code']}>
      <pre>{text}</pre>
      <CopyButton text={text} label={label} />
    </div>
  )
}

function CauseRow({ cause, choose }: { cause: Cause; choose: () => void }) {
  const { t } = useTranslation(searchTexts)
  const { t: words, i18n } = useTranslation(conditionTexts)
  const { condition, isWarning, trials } = cause
  const first = isWarning
    ? trials[0]?.warnings.find((warning) => warning.condition === condition)
    : trials[0]?.illness
  const key = `conditions:labels.${condition}`
  const label = i18n.exists(key) ? words(`labels.${condition}` as 'labels.tensor_overflow') : condition
  return (
    <UnstyledButton
      className={classes['cause'] ?? ''}
      data-testid="search-cause"
      data-warning={isWarning}
      title={t('showOnly')}
      onClick={choose}
    >
      <strong>{label}</strong> · {t('count', { count: trials.length })} · {t(isWarning ? 'noted' : 'ended')}
      {first && (
        <div className={classes['quiet']}>
          {t('first', { node: first.node, step: first.step })}
          {first.line && ` · ${first.line.split('/').at(-1) ?? ''}`}
        </div>
      )}
    </UnstyledButton>
  )
}
